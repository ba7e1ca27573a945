-- Mail that no code path can omit: the database sends it when the row changes.
CREATE TABLE parcels (
    number   integer PRIMARY KEY,
    customer text    NOT NULL,
    shipped  boolean NOT NULL DEFAULT false
);

CREATE FUNCTION tell_customer() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM postroom.send(
        ARRAY[NEW.customer],
        p_subject         => format('Parcel %s is on its way', NEW.number),
        p_text            => 'It left our warehouse today.',
        p_idempotency_key => format('shipped-%s', NEW.number)
    );
    RETURN NULL;
END
$$;

CREATE TRIGGER tell_customer
    AFTER UPDATE OF shipped ON parcels
    FOR EACH ROW
    WHEN (NEW.shipped AND NOT OLD.shipped)
    EXECUTE FUNCTION tell_customer();

INSERT INTO parcels (number, customer) VALUES (7, 'ada@example.org');
UPDATE parcels SET shipped = true WHERE number = 7;
