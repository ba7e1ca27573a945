-- Store the address of bounce_list and unsubscribe_list in lower case, before ON CONFLICT looks for it.
CREATE OR REPLACE FUNCTION lower_listed_email() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    NEW.email := lower(NEW.email);
    RETURN NEW;
END
$$;
