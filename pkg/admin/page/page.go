// Package page contains the page of the admin API: static files without data. The page calls the
// API with the credentials of its user.
package page

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed files
var files embed.FS

// policy is the Content-Security-Policy: the page may load only its own files, call only its own
// origin, and not be embedded.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler returns a handler of the page's files. Other paths get 404.
func Handler() http.Handler {
	content, err := fs.Sub(files, "files")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	server := http.FileServerFS(content)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		server.ServeHTTP(w, r)
	})
}
