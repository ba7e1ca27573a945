-- The headers that a caller may not give, each with its reason. post/header.py has the same rules.
CREATE OR REPLACE FUNCTION check_headers(p_headers jsonb) RETURNS TABLE (field text, message text)
LANGUAGE sql STABLE
AS $$
    SELECT 'headers.' || name, reason
    FROM (
        SELECT name, CASE
            WHEN name !~ '^[!-9;-~]{1,76}$' THEN 'is not a header name'
            WHEN lowered IN (
                'authentication-results', 'bcc', 'cc', 'date', 'delivered-to', 'dkim-signature', 'domainkey-signature',
                'errors-to', 'from', 'mime-version', 'received', 'received-spf', 'reply-to', 'return-path', 'sender',
                'subject', 'to') OR lowered ~ '^(arc|content|resent|postroom)-'
                THEN 'is set by Postroom and cannot be given'
            WHEN lowered IN ('apparently-to', 'x-mc-bccaddress', 'x-msys-api', 'x-pm-bcc', 'x-smtpapi')
                THEN 'lets a relay add recipients; give them as to, cc or bcc'
            WHEN value ~ '[\r\n]' THEN 'contains a line break or a NUL'
            WHEN row_number() OVER (PARTITION BY lowered ORDER BY name COLLATE "C") > 1 THEN 'is given twice'
            WHEN NOT is_structured THEN NULL
            WHEN value !~ '^[!-~]([ -~]*[!-~])?$' THEN 'must be printable ASCII without spaces at its ends'
            WHEN lowered = 'message-id' AND (value !~ '^<[!-;=?A-~]+@[!-;=?A-~]+>$' OR length(value) > 250)
                THEN 'must look like <unique@domain>'
            WHEN length(value) > 920 AND (SELECT max(length(word)) FROM regexp_split_to_table(value, ' +') AS word) > 920
                THEN 'has a word too long for a line'
        END AS reason
        FROM (
            SELECT key AS name, value, lower(key) AS lowered, starts_with(lower(key), 'list-') OR lower(key) IN (
                'auto-submitted', 'cfbl-address', 'cfbl-feedback-id', 'feedback-id', 'importance', 'in-reply-to',
                'message-id', 'precedence', 'priority', 'references', 'x-priority') AS is_structured
            FROM jsonb_each_text(p_headers)
        ) AS header
    ) AS judged
    WHERE reason IS NOT NULL
$$;
