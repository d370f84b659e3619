package differential

import (
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

type response = ratelimitv3.RateLimitResponse

const (
	ok   = ratelimitv3.RateLimitResponse_OK
	over = ratelimitv3.RateLimitResponse_OVER_LIMIT

	windowEnded     = "the window ended during the request"
	unitNotInKey    = "the unit is not in the key"
	cachedOverrides = "the local cache denies a larger limit"
	zeroCounts      = "a limit of 0 counts nothing"
	chargedTwice    = "a counter twice in one request"
)

// exceptions is the complete list of reasons for which answers to random requests may differ. If
// rewrite is nil, the counter concerned is not compared until its window ends. Otherwise rewrite
// changes theirs to the expected answer, or removes from both the parts that are not compared. It
// reports whether it changed anything.
var exceptions = []struct {
	name, reason string
	rewrite      func(p *pair, theirs, ours *response) bool
}{
	{
		name:   windowEnded,
		reason: "two servers cannot receive a request at the same instant",
	},
	{
		name: unitNotInKey,
		reason: "an override and a rule with different units share a counter of envoyproxy/ratelimit if their windows begin together; " +
			"Weir's keys include the window",
	},
	{
		name: cachedOverrides,
		reason: "with the local cache, a key over one limit is over every limit until the window ends (envoyproxy/ratelimit#1077); " +
			"Weir's deny cache includes the limit",
	},
	{
		name: chargedTwice,
		reason: "with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT envoyproxy/ratelimit checks both against the count before the request, " +
			"which is not atomic; Weir decides a request as one group",
	},
	{
		name: zeroCounts,
		reason: "envoyproxy/ratelimit counts the hits that a limit of 0 denies; peeks and larger overrides see that count. In Weir a " +
			"limit of 0 writes nothing",
	},
	{
		name: "quota of July",
		reason: "January reports a quota over its limit as OK without a reset and never denies the request; July reports it as " +
			"OVER_LIMIT and denies the request if all quotas are over",
		rewrite: quotaOfJuly,
	},
	{
		name:    "metadata of July",
		reason:  "January's dynamic metadata has quotaModeViolations and quotaModeEnabled, July's does not",
		rewrite: metadataOfJuly,
	},
	{
		name:    "denied_by",
		reason:  "Weir adds the limit that denies a request to its dynamic metadata; envoyproxy/ratelimit has no such field",
		rewrite: deniedBy,
	},
	{
		name:    "text of an override",
		reason:  "the spaces in the text form of a message change from build to build",
		rewrite: overrideText,
	},
}

func quotaOfJuly(p *pair, theirs, _ *response) bool {
	quotas, full, used := 0, 0, false
	for _, s := range theirs.GetStatuses() {
		l := s.GetCurrentLimit()
		unlimited := l == nil && s.GetLimitRemaining() > 0
		if !unlimited && (p.settings.globalQuota || strings.Contains(l.GetName(), quotaName)) {
			quotas++
		}
		if l != nil && s.GetDurationUntilReset() == nil { // no other status omits it
			full++
			s.Code, s.DurationUntilReset, used = over, reset(l, p.from), true
		}
	}
	if used && quotas == full && !p.settings.globalShadow {
		theirs.OverallCode = over
	}
	return used
}

func reset(l *ratelimitv3.RateLimitResponse_RateLimit, now time.Time) *durationpb.Duration {
	window := seconds[l.GetUnit()]
	return &durationpb.Duration{Seconds: window - now.Unix()%window}
}

func metadataOfJuly(_ *pair, theirs, _ *response) bool {
	fields := theirs.GetDynamicMetadata().GetFields()
	_, used := fields["quotaModeEnabled"]
	delete(fields, "quotaModeEnabled")
	delete(fields, "quotaModeViolations")
	return used
}

func deniedBy(_ *pair, _, ours *response) bool {
	fields := ours.GetDynamicMetadata().GetFields()
	_, used := fields["denied_by"]
	delete(fields, "denied_by")
	if used && len(fields) == 0 {
		ours.DynamicMetadata = nil
	}
	return used
}

func overrideText(_ *pair, theirs, ours *response) bool {
	used := false
	for _, r := range []*response{theirs, ours} {
		for _, d := range r.GetDynamicMetadata().GetFields()["descriptors"].GetListValue().GetValues() {
			fields := d.GetStructValue().GetFields()
			if text := fields["limit"].GetStringValue(); text != "" {
				fields["limit"] = structpb.NewStringValue(strings.Join(strings.Fields(text), " "))
				used = true
			}
		}
	}
	return used
}
