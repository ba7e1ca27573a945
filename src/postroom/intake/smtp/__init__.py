"""SMTP submission: programs that can only send mail hand it over here.

Every mail needs AUTH (any user name; the password is an API key with the scope `deliveries:write`), and AUTH needs TLS
unless the client is on this very host: this is never an open relay. 250 is answered after the commit and names the
delivery. The envelope rules who receives; the message only says how they are shown.

The message is taken apart (subject, text, HTML, files, headers) and composed anew when it leaves: that is how it gets
retries, signatures and a ledger. What would not survive this, a signed or encrypted body, is refused.
"""
