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

	"github.com/weir-rls/weir/pkg/admin"
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
		if steps, ok := response.(*[]admin.EntryReset); ok {
			response, *steps = (*steps)[0], (*steps)[1:]
		}
		_ = json.NewEncoder(w).Encode(response)
	}))
	t.Cleanup(server.Close)
	return server.URL, bodies
}

func runWithInput(in string, run func(context.Context, Streams) error) (out, errs string, err error) {
	var stdout, stderr bytes.Buffer
	err = run(context.Background(), Streams{In: strings.NewReader(in), Out: &stdout, Err: &stderr})
	return stdout.String(), stderr.String(), err
}

func TestResetByEntryAsksOnATerminal(t *testing.T) {
	terminal := isTerminal
	defer func() { isTerminal = terminal }()
	for _, tt := range []struct {
		in       string
		terminal bool
		yes      bool
		want     error
		says     string
	}{
		{"y\n", true, false, nil, "Reset every key of the domain shop that contains user_id=42? [y/N]"},
		{"YES\n", true, false, nil, ""},
		{"\n", true, false, Failed, "nothing was reset"},
		{"", true, false, Failed, "nothing was reset"},
		{"y\n", false, false, Error, "add --yes"},
		{"", false, true, nil, ""},
	} {
		isTerminal = func(any) bool { return tt.terminal }
		url, bodies := newFakeAdmin(t, map[string]any{"/v1/keys/reset-by-entry": &[]admin.EntryReset{
			{Scanned: 10, Reset: 2, Cursor: "c", Notified: true}, {Scanned: 5, Reset: 1, Done: true, Notified: true},
		}})
		r := Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "shop"}, Entry: "user_id=42", Yes: tt.yes, Output: "text"}
		out, errs, err := runWithInput(tt.in, r.Run)
		if err != tt.want || !strings.Contains(errs, tt.says) { //nolint:errorlint // an exit code
			t.Errorf("%q: %v %s, want %v %q", tt.in, err, errs, tt.want, tt.says)
		}
		if tt.want != nil && (len(*bodies) > 0 || out != "") {
			t.Errorf("%q: called with %q, printed %q", tt.in, *bodies, out)
		}
		if tt.want == nil && (out != "scanned 15, reset 3\n" || len(*bodies) != 2 || !strings.Contains((*bodies)[1], `"cursor":"c"`)) {
			t.Errorf("%q: printed %q, called with %q", tt.in, out, *bodies)
		}
	}
}

func TestResetByEntryDoesNotAskOnDevNull(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	url, _ := newFakeAdmin(t, nil)
	r := Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "shop"}, Entry: "user_id=42", Output: "text"}
	var out, errs bytes.Buffer
	err = r.Run(context.Background(), Streams{In: null, Out: &out, Err: &errs})
	if err != Error || !strings.Contains(errs.String(), "standard input is not a terminal") { //nolint:errorlint // an exit code
		t.Errorf("%v %s, want exit code 2 and the reason", err, errs.String())
	}
}

func TestResetByEntryCanBeContinued(t *testing.T) {
	steps := &[]admin.EntryReset{{Scanned: 10, Cursor: "next"}}
	url, bodies := newFakeAdmin(t, map[string]any{"/v1/keys/reset-by-entry": steps})
	*steps = append(*steps, admin.EntryReset{Done: true})
	r := Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "shop"}, Entry: "a=b", Cursor: "before", Yes: true, Output: "json"}
	out, errs, err := runWithInput("", r.Run)
	if err != Failed || !strings.Contains((*bodies)[0], `"cursor":"before"`) || !strings.Contains(out, `"scanned": 10`) || //nolint:errorlint // an exit code
		!strings.Contains(errs, "other replicas were not notified") {
		t.Errorf("%v %s %s %q, want exit code 1, the cursor in the request, the number scanned, and a warning",
			err, out, errs, *bodies)
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
		want error
		says string
	}{
		{(&Peek{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "d", Descriptor: "a"}}).Run, Error, "has no '='"},
		{(&Peek{AdminServer: AdminServer{Server: "x"}, adminKey: adminKey{Domain: "d", Descriptor: "a=b"}}).Run, Error, "is not the URL"},
		{(&Peek{AdminServer: AdminServer{Server: url, adminCredentials: adminCredentials{TokenFile: "/no/such"}}, adminKey: adminKey{Domain: "d", Descriptor: "a=b"}}).Run, Error, "the token"},
		{(&Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "d"}, Entry: "a=b,c=d", Yes: true}).Run, Error, "write one entry"},
		{(&Reset{AdminServer: AdminServer{Server: url}, adminKey: adminKey{Domain: "d", Descriptor: "a=b"}}).Run, Failed, "nothing is stored for this key"},
		{(&Peek{AdminServer: AdminServer{Server: "http://127.0.0.1:1"}, adminKey: adminKey{Domain: "d", Descriptor: "a=b"}}).Run, Error, "connection refused"},
	} {
		if out, errs, err := runWithInput("", tt.run); err != tt.want || !strings.Contains(errs, tt.says) || out != "" { //nolint:errorlint // an exit code
			t.Errorf("%v %s %s, want %v %q", err, out, errs, tt.want, tt.says)
		}
	}
	if len(*bodies) != 1 {
		t.Errorf("called with %q", *bodies)
	}
}
