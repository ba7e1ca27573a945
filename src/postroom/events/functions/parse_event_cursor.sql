-- Parse a cursor: base/page/transaction.position/own.position, all but the first usually empty. A plain number is a
-- position and means that everything up to it was seen. NULL: nothing was seen.
--
-- Why a snapshot. Neither a position nor the pair (transaction_id, position) describes what a reader has seen: an event
-- with a lower position or of an older transaction may be committed after the read. The snapshot of the read is exact.
CREATE OR REPLACE FUNCTION parse_event_cursor(p_after text) RETURNS event_cursor
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_parts text[] := string_to_array(p_after, '/');
BEGIN
    IF p_after IS NULL OR p_after ~ '^\d{1,18}$' THEN
        RETURN ROW('1:1:', '1:1:', '0', 0, '0', 0, coalesce(p_after, '0'))::event_cursor;
    END IF;
    IF p_after !~ '^\d+:\d+:[\d,]*/(\d+:\d+:[\d,]*/\d+\.\d+|/)/(\d+\.\d+)?$' THEN
        RAISE EXCEPTION 'is not a cursor of events' USING ERRCODE = 'PR001', COLUMN = 'after';
    END IF;
    RETURN ROW(
        v_parts[1],
        coalesce(nullif(v_parts[2], ''), '1:1:'),
        coalesce(nullif(split_part(v_parts[3], '.', 1), ''), '0'),
        coalesce(nullif(split_part(v_parts[3], '.', 2), ''), '0'),
        coalesce(nullif(split_part(v_parts[4], '.', 1), ''), '0'),
        coalesce(nullif(split_part(v_parts[4], '.', 2), ''), '0'),
        0
    )::event_cursor;
EXCEPTION
    WHEN invalid_text_representation OR numeric_value_out_of_range THEN
        RAISE EXCEPTION 'is not a cursor of events' USING ERRCODE = 'PR001', COLUMN = 'after';
END
$$;
