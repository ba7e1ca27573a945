// Go, database/sql and lib/pq: the order and its mail in one transaction.
package main

import (
	"database/sql"
	"errors"
	"log"
	"os"

	"github.com/lib/pq"
)

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS orders (number integer PRIMARY KEY, customer text NOT NULL)"); err != nil {
		log.Fatal(err)
	}
	id, err := placeOrder(db)
	var refused *pq.Error
	if errors.As(err, &refused) { // its code is PR001 for bad input, PR002 for a conflicting key
		log.Fatalf("%s %s %s", refused.Code, refused.Column, refused.Message)
	}
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("delivery %d", id)
}

func placeOrder(db *sql.DB) (id int64, err error) {
	tx, err := db.Begin()
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() // without effect after the commit
	if _, err = tx.Exec("INSERT INTO orders (number, customer) VALUES ($1, $2)", 42, "ada@example.org"); err != nil {
		return 0, err
	}
	err = tx.QueryRow(
		`SELECT postroom.send($1, p_subject => $2, p_text => $3, p_idempotency_key => $4, p_tags => $5)`,
		pq.Array([]string{"Ada Lovelace <ada@example.org>"}), "Order 42", "Thank you.", "order-42", `{"order": "42"}`,
	).Scan(&id)
	if err != nil {
		return 0, err
	}
	return id, tx.Commit()
}
