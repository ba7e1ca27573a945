"""SMTP submission, for programs that can only send mail by SMTP.

Every mail needs AUTH, and AUTH needs TLS unless the client connects by loopback: this is never an open relay. The
password is an API key with the scope `deliveries:write`; the user name is any, or the name of the room if the process
serves many. 250 is answered after the commit and names the delivery. The envelope decides the recipients; the headers
only decide how they are shown.

The message is parsed (subject, text, HTML, files, headers) and composed again for each attempt; this gives it retries,
signatures and a ledger. Signed or encrypted bodies would not survive this and are rejected.
"""
