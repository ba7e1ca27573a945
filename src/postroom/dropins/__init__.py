"""dropins: endpoints and backends that speak the protocol of another mail product.

NAME     dropins: an application that uses Resend, Amazon SES or Django's mail changes one setting and sends by Postroom
         resend   the HTTP API of Resend
         ses      `SendEmail` of Amazon SES version 2, signed with Signature Version 4
         django   an e-mail backend for Django
         endpoint what the HTTP drop-ins share: authentication and a body that is read after it
OWNS     the table `ses_signatures`: signatures of the last ten minutes, each with the call that it was sent for
CALLS    delivery's service, as every other way in
FAILURES errors are answered in the words of the product that is replaced
"""
