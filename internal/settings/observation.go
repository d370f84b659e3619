package settings

// Observation has the settings of reports about decisions, besides the response.
type Observation struct {
	DenialLog          float64 `env:"DENIAL_LOG" default:"0" placeholder:"SHARE" help:"The share of the keys, from 0 to 1, whose denials are logged at level info. The hash of a key selects it, so all replicas log the same keys. The lines contain hashes of keys, and no values that users sent. 0: none."`
	DenialLogPerSecond int     `env:"DENIAL_LOG_PER_SECOND" default:"10" help:"The most lines of DENIAL_LOG in a second. The next line reports how many denials were left out."`
	TopKeys            *int    `env:"TOP_KEYS" placeholder:"N" help:"How many keys each list of the heaviest and the most denied keys tracks, for the admin API. A count is too high by at most the number of all hits divided by TOP_KEYS. Each tracked key takes up to 1 kB. 0: none. Default: 1000 if ADMIN_ADDR is set, else 0."`
}

// maxTopKeys bounds the memory of the heaviest keys.
const maxTopKeys = 100_000

func (o *Observation) complete(errs *settingErrors, admin bool) {
	if !(o.DenialLog >= 0 && o.DenialLog <= 1) { // NaN is neither
		errs.add("DENIAL_LOG", "write a number from 0 to 1")
	}
	positive(errs, "DENIAL_LOG_PER_SECOND", o.DenialLogPerSecond)
	if o.TopKeys == nil {
		o.TopKeys = new(int)
		if admin {
			*o.TopKeys = 1000
		}
	}
	if *o.TopKeys < 0 || *o.TopKeys > maxTopKeys {
		errs.add("TOP_KEYS", "write a number from 0 to %d", maxTopKeys)
	}
}
