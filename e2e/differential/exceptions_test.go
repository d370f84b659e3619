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

	windowTurned    = "the window turned while it was asked"
	unitNotInKey    = "the unit is not in the key"
	cachedOverrides = "the local cache denies a larger limit"
	zeroCounts      = "a limit of 0 counts nothing"
	askedTwice      = "a counter twice in one request"
)

// exceptions are where answers to random requests may differ, and why: the whole list. One without a rewrite is about
// a counter, which is not compared until its window ends; one with a rewrite turns the incumbent's answer into the one
// that is due, or takes out of both what is not compared, and tells whether it did.
var exceptions = []struct {
	name, reason string
	rewrite      func(p *pair, theirs, ours *response) bool
}{
	{
		name:   windowTurned,
		reason: "nobody can ask two servers at one instant",
	},
	{
		name: unitNotInKey,
		reason: "an override and a rule of other units share a counter where their windows begin together " +
			"(ratelimit.md §8, 10); DESIGN.md: key text differs, and keys hold W",
	},
	{
		name: cachedOverrides,
		reason: "with the local cache on, a key that was over one limit is over any until the window ends " +
			"(ratelimit.md §8, 13; #1077); the deny cache of Weir remembers the limit too",
	},
	{
		name: askedTwice,
		reason: "with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT theirs holds each of the two to the count before the " +
			"request, which is not atomic (ratelimit.md §8, 14); Weir decides a request as one group, in order",
	},
	{
		name: zeroCounts,
		reason: "the incumbent counts what a limit of 0 denies, and only then denies looks, and a larger override starts from " +
			"there; DESIGN.md, The algorithms: max 0 denies every n > 0 and writes nothing. OPEN",
	},
	{
		name: "quota of July",
		reason: "in January a quota that is over was told as OK without a reset, and the overall code was never over; " +
			"in July it is told as it is, and overall is over when all quotas are (ratelimit.md 2.4)",
		rewrite: quotaOfJuly,
	},
	{
		name: "metadata of July",
		reason: "dynamic metadata of January tells quotaModeViolations and quotaModeEnabled, which July does not " +
			"(ratelimit.md 2.6)",
		rewrite: metadataOfJuly,
	},
	{
		name:    "text of an override",
		reason:  "the spaces in the text of a message change from build to build, on purpose (ratelimit.md 2.6)",
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
		if l != nil && s.GetDurationUntilReset() == nil { // nothing else leaves it out
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
