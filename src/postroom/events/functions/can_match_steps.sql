-- True if a query item may match facts about deliveries, which are read from all_steps: by one of their types or
-- by the tag of one delivery. Every other query leaves the steps alone. Plain SQL, so that PostgreSQL can inline it.
CREATE OR REPLACE FUNCTION can_match_steps(p_types text[], p_tags text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN (p_types = '{}' OR p_types && ARRAY['DeliveryAccepted', 'DeliverySent', 'DeliveryDeferred', 'DeliveryFailed',
        'DeliveryDeadLettered', 'DeliverySuppressed', 'DeliveryCancelled', 'DeliveryRedriven'])
    AND (p_tags = '{}' OR (p_tags[1] ~ '^postroom\.delivery=[1-9][0-9]{0,17}$' AND p_tags[1] = ALL (p_tags)));
