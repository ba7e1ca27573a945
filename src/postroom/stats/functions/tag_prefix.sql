-- The key of a tag with its `=`; empty for a template.
CREATE OR REPLACE FUNCTION tag_prefix(p_value text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN substr(p_value, 1, strpos(p_value, '='));
