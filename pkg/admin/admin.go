// Package admin serves the admin API of a process: the state of the process, the rules in force,
// and the state of a key, which a caller can also reset. It is an HTTP handler for a listener of
// its own. docs/admin.md describes every route.
//
// Every call needs a bearer token or a client certificate. Every change is reported to
// [Options].Audit before it is answered.
//
// The process passes in the rules and the parts that the API shows, see [Options]. The package
// opens and closes nothing.
package admin

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// Options configures an [API]. Store, Resets and all functions are required, except Top and Shadow.
// Without Top or Shadow, the route that needs it answers 404.
type Options struct {
	Version string // Weir's version
	// Rules returns the rules in force, nil if none have been loaded yet.
	Rules func() *descriptors.Rules
	// Store holds the states of the keys. It must return an error if it cannot read a state,
	// instead of deciding by on_store_error.
	Store limiters.Taker
	// Resets removes the states of keys.
	Resets Resets
	// Decide contains the settings with which the server decides requests.
	Decide decide.Options
	// ParseRequest reads a request of Envoy in JSON.
	ParseRequest func(body []byte) (*decide.Request, error)
	// Status returns the state of the process. The API fills in the fields about itself.
	Status func() api.Status
	// Hits returns how many hits of a rule were allowed and denied since the start.
	Hits func(*descriptors.Rule) (allowed, denied uint64)
	// StoreCalls returns the number of store calls since the start, and their total duration in
	// seconds.
	StoreCalls func() (calls uint64, seconds float64)
	// KeyHashSecret hashes keys: if it is set, responses have the HMAC of a key instead of its
	// text.
	KeyHashSecret []byte
	// Auth decides which calls are admitted.
	Auth Auth
	// Audit is called with every change, made or refused, before the response is sent.
	Audit func(Change)
	// Unauthorized is called for a call without valid credentials.
	Unauthorized func(UnauthorizedCall)
	// Answered is called for every finished call, with the path of its route or "other".
	Answered func(route string, code int)
	// StoreFailed is called with the route and the reason if the store failed. The call gets 503.
	StoreFailed func(route string, reason error)
	// Panicked is called with the route and the value of a panic, which is a bug. The call gets
	// 500.
	Panicked func(route string, value any)
	// Top returns at most n keys, the busiest first. An empty domain means all domains.
	Top func(by api.TopOrder, domain string, n int) api.Top
	// Subscribe returns a stream of the decisions that a filter selects. The error reports too many
	// subscribers.
	Subscribe func(api.Filter) (*api.Subscription, error)
	// Shadow returns the comparison of the candidate rules with the rules in force. The parameters
	// bound the lengths of its lists.
	Shadow func(limits, keys int) api.ShadowReport
}

// The bounds of a call.
const (
	maxBodyBytes = 64 << 10
	maxInFlight  = 32
	// maxStreams bounds the calls of GET /v1/decisions in progress. They do not count for
	// maxInFlight.
	maxStreams  = 8
	bodyTimeout = 5 * time.Second
)

// An API is the handler of the admin API. It reports rates only while Run is running.
type API struct {
	options  Options
	started  time.Time
	rates    rates
	routes   huma.API
	mux      *http.ServeMux
	inFlight chan struct{}
	streams  chan struct{}
	// crossOrigin rejects changes that pages of other origins send.
	crossOrigin *http.CrossOriginProtection

	stop     sync.Once
	stopping chan struct{} // closed by Stop
}

// storeTimeout bounds a call of Store. It is longer than the default of STORE_TIMEOUT, because a
// person, unlike Envoy, can wait.
const storeTimeout = time.Second

// New returns an API.
func New(o Options) *API {
	a := &API{
		options: o, started: time.Now(), mux: http.NewServeMux(), crossOrigin: http.NewCrossOriginProtection(),
		inFlight: make(chan struct{}, maxInFlight), streams: make(chan struct{}, maxStreams), stopping: make(chan struct{}),
	}
	a.rates.options = &a.options
	a.routes = humago.New(a.mux, a.config())
	a.register()
	a.mux.HandleFunc("/", a.notFound)
	return a
}

// Run measures the rates of hits and of store calls until ctx ends.
func (a *API) Run(ctx context.Context) { a.rates.run(ctx) }

// Stop ends all streams. The server must already reject new calls.
func (a *API) Stop() { a.stop.Do(func() { close(a.stopping) }) }

// config returns the configuration of the routes. It turns off the documentation pages of huma,
// which load scripts from other servers.
func (a *API) config() huma.Config {
	c := huma.DefaultConfig("Weir admin API", a.options.Version)
	c.CreateHooks, c.DocsPath, c.SchemasPath = nil, "", ""
	c.RejectUnknownQueryParameters = true
	c.Transformers = append(c.Transformers, explainInvalid)
	c.Info.Description = "State of a Weir process and of its keys. docs/admin.md of Weir describes each route with an example."
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer":      {Type: "http", Scheme: "bearer", Description: "A token from ADMIN_TOKEN_FILE."},
		"certificate": {Type: "mutualTLS", Description: "A client certificate that ADMIN_TLS_CLIENT_CA has signed."},
	}
	c.Security = []map[string][]string{{"bearer": {}}, {"certificate": {}}}
	return c
}

// explainInvalid adds the remedy to the response to an invalid request. Its list of errors names
// the invalid parts. JSON has no infinite numbers, so it has the text of one.
func explainInvalid(_ huma.Context, _ string, response any) (any, error) {
	if problem, ok := response.(*huma.ErrorModel); ok && len(problem.Errors) > 0 {
		problem.Detail = "the request is invalid, correct the parts in errors: /openapi.json has the form of each request, with examples"
		for _, e := range problem.Errors {
			if number, ok := e.Value.(float64); ok && math.IsInf(number, 0) {
				e.Value = fmt.Sprint(number)
			}
		}
	}
	return response, nil
}

// A body is the input or the output of a route without parameters and headers.
type body[T any] struct{ Body T }

// addRoute adds a route. The context of handle names the caller for [API.audit].
func addRoute[I, O any](a *API, method, path, id, summary string, handle func(context.Context, *I) (*O, error), statuses ...int) {
	huma.Register(a.routes, huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, MaxBodyBytes: maxBodyBytes, BodyReadTimeout: bodyTimeout,
		Errors: append([]int{http.StatusUnauthorized, http.StatusServiceUnavailable}, statuses...),
	}, handle)
}

func (a *API) register() {
	const badBody, tooLarge = http.StatusBadRequest, http.StatusRequestEntityTooLarge
	const invalid, unknown = http.StatusUnprocessableEntity, http.StatusNotFound
	addRoute(a, http.MethodGet, "/v1/status", "status", "The state of the process and of its store", a.status)
	addRoute(a, http.MethodGet, "/v1/rules", "rules", "The rules in force with their rates", a.rules, invalid, unknown)
	addRoute(a, http.MethodPost, peekPath, "peek", "The state of every limit of a descriptor; charges nothing", a.inspectKey, badBody,
		tooLarge, invalid, unknown)
	addRoute(a, http.MethodPost, explainPath, "explain", "Which limits a request is under, and why; charges nothing", a.explain, badBody,
		tooLarge, invalid)
	addRoute(a, http.MethodPost, resetPath, "reset", "Reset every limit of a descriptor, on all replicas", a.reset, badBody, tooLarge,
		invalid, unknown)
	addRoute(a, http.MethodPost, resetByEntryPath, "resetByEntry", "Reset every key that contains an entry, on all replicas; one step of a pass",
		a.resetByEntry, badBody, tooLarge, invalid, unknown, http.StatusConflict)
	addRoute(a, http.MethodGet, "/v1/top", "top", "The busiest or the most denied keys", a.top, invalid, unknown)
	addRoute(a, http.MethodGet, "/v1/shadow", "shadow", "What the candidate rules of SHADOW_CONFIG would change", a.shadow, invalid, unknown)
	huma.Register(a.routes, huma.Operation{
		OperationID: "decisions", Method: http.MethodGet, Path: decisionsPath, Summary: "A stream of decisions",
		Description: "Events of type decision have a Decision as data. An event of type dropped has the number of decisions that the client was too slow for.",
		Errors:      []int{http.StatusUnauthorized, invalid, http.StatusServiceUnavailable},
		Responses: map[string]*huma.Response{"200": {
			Description: "Server-sent events", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
		}},
	}, a.decisions)
	a.routes.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.Decision](), true, "Decision")
}

// notFound answers calls that have no route.
func (a *API) notFound(w http.ResponseWriter, r *http.Request) {
	if item := a.routes.OpenAPI().Paths[r.URL.Path]; item != nil {
		allowed := http.MethodGet
		if item.Get == nil {
			allowed = http.MethodPost
		}
		w.Header().Set("Allow", allowed)
		writeProblem(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s does not take %s: use %s", r.URL.Path, r.Method, allowed))
		return
	}
	writeProblem(w, http.StatusNotFound, "no such route: /openapi.json lists all")
}
