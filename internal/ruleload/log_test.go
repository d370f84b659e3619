package ruleload

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

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
