package settings

// Answers say what is answered, beside what the rules say.
type Answers struct {
	ShadowMode              bool    `env:"SHADOW_MODE" help:"Count, and deny nothing."`
	QuotaMode               bool    `env:"QUOTA_MODE" help:"Every descriptor is in quota mode: a request is denied if all of them are over."`
	NearLimitRatio          float32 `env:"NEAR_LIMIT_RATIO" default:"0.8" help:"From which part of a limit on hits count as near_limit."`
	ResponseDynamicMetadata bool    `env:"RESPONSE_DYNAMIC_METADATA" help:"Tell Envoy domain, descriptors and the metadata of rules as dynamic metadata."`

	ResponseHeaders bool   `env:"LIMIT_RESPONSE_HEADERS_ENABLED" name:"limit-response-headers-enabled" help:"Add headers about the limit to the response, whatever Envoy adds."`
	LimitHeader     string `env:"LIMIT_LIMIT_HEADER" name:"limit-limit-header" default:"RateLimit-Limit" help:"The name of the one that tells the limit."`
	RemainingHeader string `env:"LIMIT_REMAINING_HEADER" name:"limit-remaining-header" default:"RateLimit-Remaining" help:"The name of the one that tells what is left."`
	ResetHeader     string `env:"LIMIT_RESET_HEADER" name:"limit-reset-header" default:"RateLimit-Reset" help:"The name of the one that tells when, in seconds."`

	StopCacheKeyIncrementWhenOverlimit bool `env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" help:"If one limit denies a request, none of the others is charged. Two kinds of rules are charged all the same: rules in shadow mode, and rules in quota mode if a request is under several. If all of these quotas deny a request, its other limits have been charged."`
}

func (a *Answers) complete(f *faults) {
	if !(a.NearLimitRatio >= 0 && a.NearLimitRatio <= 1) { // NaN is neither
		f.tell("NEAR_LIMIT_RATIO", "want a number from 0 to 1")
	}
	for variable, name := range map[string]string{
		"LIMIT_LIMIT_HEADER": a.LimitHeader, "LIMIT_REMAINING_HEADER": a.RemainingHeader, "LIMIT_RESET_HEADER": a.ResetHeader,
	} {
		if name == "" {
			f.tell(variable, "a header wants a name")
		}
	}
}
