package rulesdiff

import (
	"fmt"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// describe returns a limit in one line: "5 per minute, funnel, capacity=10". Limits that decide alike have one description.
func describe(rule *descriptors.Rule, l *descriptors.RateLimit) string {
	spec := l.Limit.Spec()
	parts := []string{l.Rate(), spec.Algorithm}
	for _, p := range limiters.Parameters(spec.Algorithm) {
		if text := p.Text(spec.Params); text != "" && !p.Hidden {
			parts = append(parts, p.Key+"="+text)
		}
	}
	if spec.CountDenied != limiters.CountsDeniedByDefault(spec.Algorithm) {
		parts = append(parts, fmt.Sprintf("count_denied=%t", spec.CountDenied))
	}
	if rule.ShadowMode {
		parts = append(parts, "shadow_mode")
	}
	if rule.QuotaMode {
		parts = append(parts, "quota_mode")
	}
	if len(rule.Replaces) > 0 {
		parts = append(parts, "replaces "+strings.Join(rule.Replaces, " "))
	}
	return strings.Join(parts, ", ")
}
