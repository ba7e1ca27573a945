-- True. The planner evaluates it when it plans a statement, once per connection, and so allocates and frees 1 MB: from then
-- on glibc's malloc keeps up to 2 MB of free heap in this backend. Without it, malloc returns the top of the heap to the
-- kernel whenever 128 KB of it are free, and a scan of a B-tree alone takes 27 to 43 KB: an accepted mail then made up to ten
-- system calls and twelve page faults, at a quarter of its cost, depending on what the connection did before.
CREATE OR REPLACE FUNCTION keep_heap() RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT length(repeat(' ', 1048576)) > 0
$$;
