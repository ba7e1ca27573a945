"""mail: templates, rendering and composition of messages.

NAME     mail, templates and bytes
OWNS     `templates` and `template_versions`; it changes deliveries through delivery's statements
         template_files  templates as files, and the source of each
         catalog    templates, parsed
         publishing templates of files become the current versions of the room
         watcher    publishes the files of a worker after a change
         versions   versions of the room, loaded once and rendered from memory
         library    the room's templates for people: versions, differences, previews
         template_check  rejects, at acceptance, a template or variables that cannot be rendered
         render     strict, sandboxed, bounded
         plaintext  the text part, derived when a template has none
         rendering  a claimed delivery gets its content as it leaves: rendered, or the one that is stored for it
         contents   the same content again, for readers
         source     the message of a delivery again, for readers
         compose    `MailWriter`: a claimed delivery → envelope and message
STATES   mail that is due later becomes rendered or failed (`render_failed`) before its time; other mail is rendered by
         the worker that claims it, and fails without an attempt. A delivery keeps the version it was accepted with and
         always gives the same bytes: readers get its text and HTML as sent, with LF as line ends
CALLED BY  delivery's worker (`MailWriter`), app (the renderer's loop), http, dashboard and cli
FAILURES   `TemplateInvalid` when files are loaded or a sample fails; a rendering that fails is a value, `RenderError`,
         and ends its delivery only, as does a row whose variables cannot be decoded
"""
