package ruleload

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

func TestAtMost20WarningsAreLogged(t *testing.T) {
	for _, n := range []int{20, 21, 22} { // beyond 20, a last line has their number
		core, logged := observer.New(zap.InfoLevel)
		logWarnings(zap.New(core), make([]rulesfile.Diagnostic, n))
		if total := logged.FilterField(zap.Int("warnings_total", n)).Len(); logged.Len() != min(n, 21) || total != min(n-20, 1) {
			t.Errorf("%d warnings: %d lines, %d of them with the total, want %d and %d", n, logged.Len(), total, min(n, 21), min(n-20, 1))
		}
	}
}

func TestAtMost20FaultsAreLogged(t *testing.T) {
	logged := func(err error) string {
		entry, err := zapcore.NewJSONEncoder(zapcore.EncoderConfig{}).EncodeEntry(zapcore.Entry{}, faultFields(err))
		must.Succeed(t, err)
		return entry.String()
	}
	text := "domain: d\n"
	for i := range 50 {
		text += fmt.Sprintf("x%d: 1\n", i)
	}
	_, err := rulesfile.Parse(rulesfile.File{Name: "f", Data: []byte(text)})
	got := logged(err)
	if !strings.Contains(got, `"faults_total":50`) || strings.Count(got, `"line":`) != 20 ||
		!strings.Contains(got, `{"file":"f","line":21,"column":1,"message":"`) {
		t.Errorf("50 faults are logged as %s", got)
	}
	if got := logged(errors.New("no such file")); !strings.Contains(got, `"error":"no such file"`) {
		t.Errorf("an error is logged as %s", got)
	}
}
