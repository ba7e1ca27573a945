-- An id that fences its holder and is never given out twice: the milliseconds since 2020 in the upper 41 bits, random bits in
-- the lower 22. A sequence repeats its ids when the server loses the commit that took them: in a crash before the log was
-- written to disk, or in a failover to a replica that lags. The random bits keep ids apart after the clock was set back. Ids increase
-- with the clock, and are larger than those of the sequences that release 0.1.0 used.
CREATE OR REPLACE FUNCTION unrepeatable_id(p_at timestamptz DEFAULT clock_timestamp()) RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
    SELECT ((extract(epoch FROM p_at) - 1577836800) * 1000)::bigint << 22 | floor(random() * 4194304)::bigint
$$;
