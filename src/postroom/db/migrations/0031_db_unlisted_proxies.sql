-- Database: proxies that the doctor names.

-- The private address from which a process got requests with X-Forwarded-For although POSTROOM_TRUSTED_PROXIES does not list it.
ALTER TABLE processes ADD COLUMN unlisted_proxy text;
