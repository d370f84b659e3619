package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

func TestExitCodesOfErrors(t *testing.T) {
	faults := rulesfile.Faults{{File: "rules.yaml", Line: 1, Column: 2, Message: "wrong"}}
	for _, tt := range []struct {
		err    error
		code   int
		prints string
	}{
		{nil, 0, ""},
		{Failed, 1, ""},
		{fmt.Errorf("again: %w", Failed), 1, ""},
		{failedError{errors.New("no such key")}, 1, "weir: no such key\n"},
		{errors.New("no answer \x1b[31m"), 2, "weir: no answer \\x1b[31m\n"},
		{&fs.PathError{Op: "open", Path: "a", Err: fs.ErrNotExist}, 2, "weir: read a: file does not exist: correct the path\n"},
		{faults, 2, faults.Error() + "\n"},
	} {
		var errs bytes.Buffer
		if code := ExitCode(tt.err, &errs); code != tt.code || errs.String() != tt.prints {
			t.Errorf("%v: exit code %d and %q, want %d and %q", tt.err, code, &errs, tt.code, tt.prints)
		}
	}
}

// A status of 404 is a failure only if Weir's API says that it does not know the key.
func TestExitCodesOfAnUnknownURL(t *testing.T) {
	foreign := httptest.NewServer(http.NotFoundHandler())
	defer foreign.Close()
	weir, _ := newFakeAdmin(t, nil)
	key := adminKey{Domain: "d", Descriptor: "a=b"}
	for _, tt := range []struct {
		name string
		run  func(server AdminServer) func(context.Context, Streams) error
		weir int
	}{
		{"peek", func(s AdminServer) func(context.Context, Streams) error {
			return (&Peek{AdminServer: s, adminKey: key}).Run
		}, 1},
		{"reset", func(s AdminServer) func(context.Context, Streams) error {
			return (&Reset{AdminServer: s, adminKey: key}).Run
		}, 1},
		{"top", func(s AdminServer) func(context.Context, Streams) error {
			return (&Top{AdminServer: s, By: "hits", N: 1}).Run
		}, 2},
		{"tail", func(s AdminServer) func(context.Context, Streams) error { return (&Tail{AdminServer: s}).Run }, 2},
		{"explain", func(s AdminServer) func(context.Context, Streams) error {
			return (&Explain{Live: s.Server, Domain: "d", Descriptors: []string{"a=b"}}).Run
		}, 2},
	} {
		for url, want := range map[string]int{foreign.URL: 2, weir: tt.weir} {
			if _, errs, code := runWithInput("", tt.run(AdminServer{Server: url})); code != want || !strings.HasPrefix(errs, "weir: ") {
				t.Errorf("%s: exit code %d, want %d\n%s", tt.name, code, want, errs)
			}
		}
	}
}
