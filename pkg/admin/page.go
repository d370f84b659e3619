package admin

import (
	"embed"
	"io/fs"
	"net/http"
	"sync"
)

//go:embed page
var pageFiles embed.FS

// pagePolicy is the Content-Security-Policy: the page may load only its own files, call only its
// own origin, and not be embedded.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// servePage serves the page: static files without data, which call the API with the credentials of
// the user. Other paths get 404.
func servePage(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	pageServer().ServeHTTP(w, r)
}

var pageServer = sync.OnceValue(func() http.Handler {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // impossible: the folder is embedded above
	}
	return http.FileServerFS(files)
})
