-- Notify workers that sleep in these lanes. A NOTIFY takes a lock at commit that all notifying transactions share (it
-- costs two thirds of the throughput at ten clients), so a worker that is awake is not notified: it polls anyway.
CREATE OR REPLACE FUNCTION wake_workers(p_lanes text[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_lane delivery_lane;
BEGIN
    IF NOT EXISTS (SELECT FROM workers WHERE asleep && p_lanes::delivery_lane[]) THEN
        RETURN; -- the usual case under load, and the only part that has to be cheap
    END IF;
    FOR v_lane IN
        SELECT DISTINCT sleeping.lane FROM workers, unnest(asleep) AS sleeping(lane)
        WHERE sleeping.lane::text = ANY (p_lanes)
    LOOP
        PERFORM pg_notify(current_schema() || '_deliveries', v_lane::text);
    END LOOP;
END
$$;
