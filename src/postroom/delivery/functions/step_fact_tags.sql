-- The tags of the fact that a step is.
CREATE OR REPLACE FUNCTION step_fact_tags(p_delivery_id bigint) RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY['postroom.delivery=' || p_delivery_id];
