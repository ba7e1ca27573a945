-- The id of a campaign from the text of a column of a list; NULL if an application uses names of its own.
CREATE OR REPLACE FUNCTION numeric_campaign(p_campaign text) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN p_campaign ~ '^[0-9]{1,18}$' THEN p_campaign::bigint END
$$;
