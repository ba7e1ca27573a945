-- Reject writes to the ledger's view and deletes from both views: only retention and the archive delete rows.
CREATE OR REPLACE FUNCTION refuse_view_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% is a read-only view; its rows are removed by retention (postroom archive)', TG_TABLE_NAME
        USING ERRCODE = 'PR102';
END
$$;

CREATE OR REPLACE TRIGGER refuse_view_change
    INSTEAD OF DELETE ON email_queue
    FOR EACH ROW EXECUTE FUNCTION refuse_view_change();

CREATE OR REPLACE TRIGGER refuse_view_change
    INSTEAD OF INSERT OR UPDATE OR DELETE ON send_logs
    FOR EACH ROW EXECUTE FUNCTION refuse_view_change();
