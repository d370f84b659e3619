package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/admin/api"
)

// newFakeAdmin answers with canned responses by the path, and notes the bodies of calls.
func newFakeAdmin(t *testing.T, responses map[string]any) (url string, bodies *[]string) {
	t.Helper()
	bodies = new([]string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*bodies = append(*bodies, string(body))
		response, known := responses[r.URL.Path]
		if !known {
			w.WriteHeader(http.StatusNotFound)
			response = map[string]string{"detail": "nothing is stored for this key"}
		}
		if steps, ok := response.(*[]api.ResetByEntryResult); ok && len(*steps) > 0 {
			response, *steps = (*steps)[0], (*steps)[1:]
		} else if ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			response = map[string]string{"detail": "no more steps"}
		}
		_ = json.NewEncoder(w).Encode(response)
	}))
	t.Cleanup(server.Close)
	return server.URL, bodies
}

func runWithInput(in string, run func(context.Context, Streams) error) (out, errs string, code int) {
	var stdout, stderr bytes.Buffer
	code = ExitCode(run(context.Background(), Streams{In: strings.NewReader(in), Out: &stdout, Err: &stderr}), &stderr)
	return stdout.String(), stderr.String(), code
}

func TestResetByEntryAsksOnATerminal(t *testing.T) {
	terminal := isTerminal
	defer func() { isTerminal = terminal }()
	for _, tt := range []struct {
		in       string
		terminal bool
		yes      bool
		want     int
		says     string
	}{
		{"y\n", true, false, 0, "Reset every key of the domain shop that contains user_id=42? [y/N]"},
		{"YES\n", true, false, 0, ""},
		{"\n", true, false, 1, "nothing was reset"},
		{"", true, false, 1, "nothing was reset"},
		{"y\n", false, false, 2, "add --yes"},
		{"", false, true, 0, ""},
	} {
		isTerminal = func(any) bool { return tt.terminal }
		url, bodies := newFakeAdmin(t, map[string]any{"/v1/keys/reset-by-entry": &[]api.ResetByEntryResult{
			{Scanned: 10, Reset: 2, Cursor: "c", Notified: true}, {Scanned: 5, Reset: 1, Done: true, Notified: true},
		}})
		r := Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "shop"}, Entry: "user_id=42", Yes: tt.yes, Output: "text"}
		out, errs, code := runWithInput(tt.in, r.Run)
		if code != tt.want || !strings.Contains(errs, tt.says) {
			t.Errorf("%q: exit code %d %s, want %d %q", tt.in, code, errs, tt.want, tt.says)
		}
		if tt.want != 0 && (len(*bodies) > 0 || out != "") {
			t.Errorf("%q: called with %q, printed %q", tt.in, *bodies, out)
		}
		if tt.want == 0 && (out != "scanned 15, reset 3\n" || len(*bodies) != 2 || !strings.Contains((*bodies)[1], `"cursor":"c"`)) {
			t.Errorf("%q: printed %q, called with %q", tt.in, out, *bodies)
		}
	}
}

func TestResetByEntryDoesNotAskOnDevNull(t *testing.T) {
	null, err := os.Open(os.DevNull)
	must.Succeed(t, err)
	defer null.Close()
	url, _ := newFakeAdmin(t, nil)
	r := Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "shop"}, Entry: "user_id=42", Output: "text"}
	var out, errs bytes.Buffer
	code := ExitCode(r.Run(context.Background(), Streams{In: null, Out: &out, Err: &errs}), &errs)
	if code != 2 || !strings.Contains(errs.String(), "standard input is not a terminal") {
		t.Errorf("exit code %d %s, want 2 and the reason", code, errs.String())
	}
}

func TestResetByEntryCanBeContinued(t *testing.T) {
	steps := &[]api.ResetByEntryResult{{Scanned: 10, Cursor: "next"}}
	url, bodies := newFakeAdmin(t, map[string]any{"/v1/keys/reset-by-entry": steps})
	*steps = append(*steps, api.ResetByEntryResult{Done: true})
	r := Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "shop"}, Entry: "a=b", Cursor: "before", Yes: true, Output: "json"}
	out, errs, code := runWithInput("", r.Run)
	if code != 1 || !strings.Contains((*bodies)[0], `"cursor":"before"`) || !strings.Contains(out, `"scanned": 10`) ||
		!strings.Contains(errs, "other replicas were not fully notified") {
		t.Errorf("exit code %d %s %s %q, want 1, the cursor in the request, the number scanned, and a warning",
			code, out, errs, *bodies)
	}
}

// A server that gives {} or null to every call is no admin API, and no command repeats a call to it
// without end.
func TestResponsesOfAnotherServerAreErrors(t *testing.T) {
	for _, response := range []any{struct{}{}, nil} {
		url, _ := newFakeAdmin(t, map[string]any{
			"/v1/explain": response, "/v1/keys/peek": response, "/v1/keys/reset": response, "/v1/keys/reset-by-entry": response,
		})
		at, key := AdminServer{Server: url}, adminKey{Domain: "d", Descriptor: "user_id=42"}
		for name, run := range map[string]func(context.Context, Streams) error{
			"explain":       (&Explain{Live: url, Domain: "d", Descriptors: []string{"user_id=42"}, Output: "text"}).Run,
			"peek":          (&Peek{AdminServer: at, adminKey: key, Output: "text"}).Run,
			"reset":         (&Reset{AdminServer: at, adminKey: key, Output: "text"}).Run,
			"reset --entry": (&Reset{AdminServer: at, adminKey: adminKey{Domain: "d"}, Entry: "user_id=42", Yes: true, Output: "text"}).Run,
		} {
			if out, errs, code := runWithInput("", run); code != 2 || !strings.Contains(errs, "check the address") {
				t.Errorf("%s, response %v: exit code %d, %s%s, want 2 and the remedy", name, response, code, out, errs)
			}
		}
	}
}

func TestResetByEntryEndsIfTheCursorStays(t *testing.T) {
	url, bodies := newFakeAdmin(t, map[string]any{"/v1/keys/reset-by-entry": api.ResetByEntryResult{Scanned: 1, Cursor: "c", Notified: true}})
	r := Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "d"}, Entry: "user_id=42", Yes: true, Output: "text"}
	if _, errs, code := runWithInput("", r.Run); code != 2 || len(*bodies) != 2 || !strings.Contains(errs, "repeats a step") {
		t.Errorf("exit code %d after %d calls, %s, want 2 after the second call", code, len(*bodies), errs)
	}
}

func TestInterruptedResetByEntryNamesTheCursorOfTheServer(t *testing.T) {
	steps := &[]api.ResetByEntryResult{{Scanned: 10, Reset: 1, Cursor: "next"}}
	url, _ := newFakeAdmin(t, map[string]any{"/v1/keys/reset-by-entry": steps})
	r := Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "shop"}, Entry: "a=b", Cursor: "before", Yes: true, Output: "text"}
	_, errs, code := runWithInput("", r.Run)
	if code != 2 || !strings.Contains(errs, "scanned 10, reset 1. To continue: --cursor next\n") || !strings.Contains(errs, "not fully notified") {
		t.Errorf("exit code %d, %s, want 2, the cursor next, and a warning about the replicas", code, errs)
	}
	if _, errs, code := runWithInput("", r.Run); code != 2 || strings.Contains(errs, "To continue") || strings.Contains(errs, "not fully notified") {
		t.Errorf("without a step: exit code %d, %s, want 2 and only the error", code, errs)
	}
}

func TestCommandsOfTheAdminAPICheckTheirArguments(t *testing.T) {
	for _, r := range []Reset{
		{}, {Entry: "a=b", adminKey: adminKey{Descriptor: "a=b"}}, {adminKey: adminKey{Descriptor: "a=b"}, Cursor: "c"},
	} {
		if r.Validate() == nil {
			t.Errorf("%+v is valid", r)
		}
	}
	if (&Peek{}).Validate() == nil {
		t.Error("peek without a descriptor is valid")
	}
	url, bodies := newFakeAdmin(t, nil)
	for _, tt := range []struct {
		run  func(context.Context, Streams) error
		want int
		says string
	}{
		{(&Peek{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "d", Descriptor: "a"}}).Run, 2, "has no '='"},
		{(&Peek{AdminServer: AdminServer{Server: "x"}, adminKey: adminKey{Domain: "d", Descriptor: "a=b"}}).Run, 2, "is not the URL"},
		{(&Peek{AdminServer: AdminServer{Server: url, adminCredentials: adminCredentials{TokenFile: "/no/such"}}, adminKey: adminKey{Domain: "d", Descriptor: "a=b"}}).Run, 2, "the token"},
		{(&Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "d"}, Entry: "a=b,c=d", Yes: true}).Run, 2, "want one entry"},
		{(&Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "d", Descriptor: "a=b"}}).Run, 1, "nothing is stored for this key"},
		{(&Peek{AdminServer: AdminServer{Server: "http://127.0.0.1:1"}, adminKey: adminKey{Domain: "d", Descriptor: "a=b"}}).Run, 2, "connection refused"},
	} {
		if out, errs, code := runWithInput("", tt.run); code != tt.want || !strings.Contains(errs, tt.says) || out != "" {
			t.Errorf("exit code %d %s %s, want %d %q", code, out, errs, tt.want, tt.says)
		}
	}
	if len(*bodies) != 1 {
		t.Errorf("called with %q", *bodies)
	}
}
