-- Statements of bench/dashboard.py.

-- name: roll_up
SELECT fold_stats($1);

-- name: settle
VACUUM ANALYZE stats_hourly, stats_dimension_hours;
