-- The ledger is not written through its view, and neither view is a place to delete from: retention and the archive do so.
CREATE OR REPLACE FUNCTION refuse_view_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% shows what is kept elsewhere; rows leave it by retention (postroom archive)', TG_TABLE_NAME
        USING ERRCODE = 'PR102';
END
$$;

CREATE OR REPLACE TRIGGER refuse_view_change
    INSTEAD OF DELETE ON email_queue
    FOR EACH ROW EXECUTE FUNCTION refuse_view_change();

CREATE OR REPLACE TRIGGER refuse_view_change
    INSTEAD OF INSERT OR UPDATE OR DELETE ON send_logs
    FOR EACH ROW EXECUTE FUNCTION refuse_view_change();
