"""What `manage.py demo` needs beside the site: a plan, a worker, a display, and the checks at the end."""
