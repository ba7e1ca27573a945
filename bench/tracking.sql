-- name: count_opens
SELECT count(*) FROM open_events;

-- name: count_clicks
SELECT count(*) FROM click_events;
