# Ruby and pg: the order and its mail in one transaction.
require "json"
require "pg"

connection = PG.connect(ENV.fetch("DATABASE_URL"))
connection.exec("CREATE TABLE IF NOT EXISTS orders (number integer PRIMARY KEY, customer text NOT NULL)")
begin
  connection.transaction do
    connection.exec_params("INSERT INTO orders (number, customer) VALUES ($1, $2)", [42, "ada@example.org"])
    connection.exec_params(
      "SELECT postroom.send(ARRAY[$1], p_subject => $2, p_text => $3, p_idempotency_key => $4, p_tags => $5)",
      ["Ada Lovelace <ada@example.org>", "Order 42", "Thank you.", "order-42", JSON.generate({ order: "42" })],
    )
  end
rescue PG::Error => error
  # PR001 for bad input, PR002 for a conflicting key
  abort "#{error.result&.error_field(PG::PG_DIAG_SQLSTATE)} #{error.message}"
ensure
  connection.close
end
