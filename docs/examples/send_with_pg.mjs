// Node.js and pg: the order and its mail in one transaction.
import pg from "pg";

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
await client.query("CREATE TABLE IF NOT EXISTS orders (number integer PRIMARY KEY, customer text NOT NULL)");
try {
  await client.query("BEGIN");
  await client.query("INSERT INTO orders (number, customer) VALUES ($1, $2)", [42, "ada@example.org"]);
  await client.query(
    `SELECT postroom.send($1::text[], p_subject => $2, p_text => $3,
       p_idempotency_key => $4, p_tags => $5)`,
    [["Ada Lovelace <ada@example.org>"], "Order 42", "Thank you.", "order-42", { order: "42" }],
  );
  await client.query("COMMIT");
} catch (error) {
  await client.query("ROLLBACK"); // error.code is PR001 for bad input, PR002 for a conflicting key
  throw error;
} finally {
  await client.end();
}
