-- Keep the rows behind bounce_list and unsubscribe_list equal to the suppressions, for every client.
CREATE OR REPLACE FUNCTION follow_suppressions() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may suppress need not have write access to the lists
SET search_path FROM CURRENT
AS $$
BEGIN
    CASE TG_OP
        WHEN 'INSERT' THEN PERFORM list_suppressed(ARRAY(SELECT address FROM new_rows));
        WHEN 'DELETE' THEN PERFORM list_suppressed(ARRAY(SELECT address FROM old_rows));
        ELSE PERFORM list_suppressed(ARRAY(SELECT address FROM old_rows UNION SELECT address FROM new_rows));
    END CASE;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER suppressions_insert_lists
    AFTER INSERT ON suppressions
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION follow_suppressions();

CREATE OR REPLACE TRIGGER suppressions_update_lists
    AFTER UPDATE ON suppressions
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION follow_suppressions();

CREATE OR REPLACE TRIGGER suppressions_delete_lists
    AFTER DELETE ON suppressions
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION follow_suppressions();
