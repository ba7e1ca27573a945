"""post: the rules and formats of mail, without database or socket.

NAME     post, the rules and formats of mail
OWNS     no table; every module is pure
         address      the grammar of addresses, and their canonical form
         header       which headers a caller may set, and their encoding
         message_id, return_path   signed names of a delivery that reports quote back
         mime, dkim   the bytes of a message and its signatures
         mime_guard   the cost of parsing a message, computed before it is parsed
         html_guard   the same for HTML
         reply        envelope, content, and the reply of the other side
         meaning      the meaning of replies: one table
         report, prose     delivery status notifications, complaints, and bounces written for people
         text         text that PostgreSQL can store
CALLED BY  every capability that handles mail; it imports nothing but `postroom.errors`
HOSTILE INPUTS  addresses, headers and attachments of callers; replies, reports and complaints of strangers. Every
         length and count has a limit, and no regular expression needs more than linear time
FAILURES   ValueError with a few words that follow the name of the value; `report` never raises
"""
