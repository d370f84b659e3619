package ruleload

import (
	"errors"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

const maxLoggedDiagnostics = 20

func logWarnings(log *zap.Logger, warnings []rulesfile.Diagnostic) {
	for _, w := range warnings[:min(len(warnings), maxLoggedDiagnostics)] {
		log.Warn("warning about a rule", zap.Inline(loggedDiagnostic(w)))
	}
	if len(warnings) > maxLoggedDiagnostics {
		log.Warn("more warnings about rules", zap.Int("warnings_total", len(warnings)), zap.String("remedy", "run weir check"))
	}
}

// logLoaded logs rules that have come into force, and their differences from old rules, unless old
// is nil.
func logLoaded(log *zap.Logger, old, rules *descriptors.Rules) {
	fields := countFields(rules)
	if old != nil {
		c := descriptors.Diff(old, rules)
		fields = append(fields, zap.Bool("rules_changed", c.Any()),
			zap.Int("domains_added", c.DomainsAdded), zap.Int("domains_removed", c.DomainsRemoved),
			zap.Int("rules_added", c.RulesAdded), zap.Int("rules_removed", c.RulesRemoved),
			zap.Int("rules_modified", c.RulesModified), zap.Bool("rules_reordered", c.Reordered))
	}
	log.Info("rules loaded", fields...)
}

func countFields(rules *descriptors.Rules) []zap.Field {
	domains, n := rules.Counts()
	return []zap.Field{zap.Int("domains", domains), zap.Int("rules", n)}
}

// faultFields returns log fields for rules that were not loaded: the first maxLoggedDiagnostics
// faults, or the error if it is not a fault.
func faultFields(err error) []zap.Field {
	faults, ok := errors.AsType[rulesfile.Faults](err)
	if !ok {
		return []zap.Field{zap.Error(err)}
	}
	var logged []loggedDiagnostic
	for _, f := range faults[:min(len(faults), maxLoggedDiagnostics)] {
		logged = append(logged, loggedDiagnostic(f))
	}
	return []zap.Field{zap.Int("faults_total", len(faults)), zap.Objects("faults", logged)}
}

type loggedDiagnostic rulesfile.Diagnostic

func (d loggedDiagnostic) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("file", d.File)
	enc.AddInt("line", d.Line)
	enc.AddInt("column", d.Column)
	enc.AddString("message", d.Message)
	if d.Remedy != "" {
		enc.AddString("remedy", d.Remedy)
	}
	enc.AddString("id", d.ID)
	return nil
}
