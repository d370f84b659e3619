package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/weir-rls/weir/internal/recovery"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// An UnauthorizedCall is a call without valid credentials.
// Method is truncated, because clients choose it.
type UnauthorizedCall struct{ Remote, Method, Route string }

const maxMethodBytes = 32

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response := &recovery.Response{ResponseWriter: w}
	route := a.routeOf(r.URL.Path)
	defer func() { a.options.Answered(route, max(response.Code, http.StatusOK)) }()
	recovery.Report(a.options.Panicked).Serve(response, route, func() { a.serve(response, r, route) }, func() {
		writeProblem(response, http.StatusInternalServerError, "a bug in Weir: its log has the details")
	})
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, route string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if isAPI(r.URL.Path) {
		a.serveAPI(w, r, route)
		return
	}
	// A client without credentials must not take the slots of the API.
	if a.checkOrigin(w, r) {
		servePage(w, r)
	}
}

func (a *API) serveAPI(w http.ResponseWriter, r *http.Request, route string) {
	who, ok := a.options.Auth.caller(r)
	if !ok {
		a.rejectCaller(w, r, route)
		return
	}
	c := &call{caller: who}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	if isChange(route) {
		defer a.auditUnfinished(r.Context(), route, c)
	}
	if !a.checkOrigin(w, r) {
		return
	}
	slots := a.inFlight
	if route == decisionsPath {
		slots = a.streams
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		w.Header().Set("Retry-After", "1")
		writeProblem(w, http.StatusServiceUnavailable, fmt.Sprintf("%d calls are being answered, the maximum: try again", cap(slots)))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	c.running = true
	a.mux.ServeHTTP(w, r)
	c.running = false
}

// rejectCaller answers a call without valid credentials.
func (a *API) rejectCaller(w http.ResponseWriter, r *http.Request, route string) {
	a.options.Unauthorized(UnauthorizedCall{r.RemoteAddr, descriptors.Truncate(r.Method, maxMethodBytes), route})
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir admin"`)
	writeProblem(w, http.StatusUnauthorized, "no valid credentials: send Authorization: Bearer with a token from ADMIN_TOKEN_FILE")
}

// checkOrigin returns false if a page of another origin sent the request, which it answers. A
// browser sends a client certificate with the requests of every site.
func (a *API) checkOrigin(w http.ResponseWriter, r *http.Request) bool {
	// Check allows every GET, but a page could still hold all streams.
	site := r.Header.Get("Sec-Fetch-Site")
	ownPage := site == "" || site == "same-origin" || site == "none"
	if a.crossOrigin.Check(r) == nil && (ownPage || !isAPI(r.URL.Path)) {
		return true
	}
	writeProblem(w, http.StatusForbidden, "a page of another origin sent this request")
	return false
}

// auditUnfinished audits a change that its route has not audited.
func (a *API) auditUnfinished(ctx context.Context, route string, c *call) {
	switch {
	case c.audited:
	case c.running: // it panicked
		a.audit(ctx, Change{Action: route, Outcome: Failed, Detail: "a bug in Weir: the log has the details"})
	default:
		a.audit(ctx, Change{Action: route, Outcome: Refused, Detail: "the request is invalid, or there are too many"})
	}
}

// isAPI reports whether a path belongs to the API and not to the page.
func isAPI(path string) bool {
	return strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/openapi")
}

// decisionsPath is the route of streams.
const decisionsPath = "/v1/decisions"

// routeOf returns the path of a route, or one name for all other paths, so that the number of names
// is bounded.
func (a *API) routeOf(path string) string {
	if a.routes.OpenAPI().Paths[path] != nil {
		return path
	}
	return "other"
}

// A callKey is the key of the call in a context.
type callKey struct{}

// A call is the state of a call with valid credentials.
type call struct {
	caller  string // see Change
	audited bool   // a change of the call has been reported
	running bool   // the route has begun and has not returned; also after a panic
}

// isChange reports whether a route changes states.
func isChange(route string) bool { return route == resetPath || route == resetByEntryPath }

// audit reports a change.
func (a *API) audit(ctx context.Context, change Change) {
	c := ctx.Value(callKey{}).(*call)
	change.Caller, c.audited = c.caller, true
	a.options.Audit(change)
}

// writeProblem writes a response as RFC 9457 defines it, in the form of the routes' errors.
func writeProblem(w http.ResponseWriter, code int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(huma.ErrorModel{Title: http.StatusText(code), Status: code, Detail: detail})
}
