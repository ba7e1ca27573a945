"""mail: rendering and composition of messages.

NAME     mail, templates and bytes
OWNS     `templates` and `template_versions`; it writes content through delivery's statements
         template_files  templates as files, and the source of each
         catalog    templates, parsed
         publishing templates of files become the current versions of the room
         template_check  rejects, at acceptance, a template or variables that cannot be rendered
         render     strict, sandboxed, bounded
         plaintext  the text part, derived when a template has none
         compose    `MailWriter`: a claimed delivery → envelope and message
STATES   moves deliveries from queued to rendered, or to failed (`render_failed`)
CALLED BY  delivery's worker (`MailWriter`), app (the renderer's loop), http and cli (preview)
FAILURES   `TemplateInvalid` at the start; a rendering that fails is a value, `RenderError`, and ends its delivery only,
         as does a row whose variables cannot be decoded
"""
