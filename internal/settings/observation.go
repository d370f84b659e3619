package settings

// Observation has the settings of reports about decisions, besides the response.
type Observation struct {
	DenialLog          float64 `env:"DENIAL_LOG" default:"0" placeholder:"SHARE" help:"The share of the keys, from 0 to 1, whose denials are logged at level info. The hash of a key selects it, so all replicas log the same keys. The lines contain hashes of keys, and no values that users sent. 0: none."`
	DenialLogPerSecond int     `env:"DENIAL_LOG_PER_SECOND" default:"10" help:"The most lines of DENIAL_LOG in a second. The next line reports how many denials were left out."`
	TopKeys            *int    `env:"TOP_KEYS" placeholder:"N" help:"How many keys each list of the heaviest and the most denied keys tracks, for the admin API. A count is too high by at most the number of all hits divided by TOP_KEYS, plus the error of a sample above 10,000 decisions a second. Each tracked key takes up to 1 kB. 0: none. Default: 1000 if ADMIN_ADDR is set, else 0."`
	RecordPath         string  `env:"RECORD_PATH" placeholder:"FOLDER" help:"A folder to which Weir writes a recording of its requests, for weir simulate, suggest and diff. Weir makes the folder if it is missing. Empty: no recording. See docs/recording.md."`
	RecordSample       float64 `env:"RECORD_SAMPLE" default:"1" placeholder:"SHARE" help:"The share of the keys, above 0 and up to 1, whose requests are recorded. The hash of a key selects it, so the recording has all hits of a key or none, and all replicas record the same keys."`
	RecordPerSecond    int     `env:"RECORD_PER_SECOND" default:"100000" placeholder:"N" help:"The most lines that Weir records in a second. Weir drops further lines, counts them, and notes them in the recording."`
	RecordFileBytes    int64   `env:"RECORD_FILE_BYTES" default:"67108864" placeholder:"BYTES" help:"The size of a file of the recording. Then Weir begins the next file."`
	RecordMaxBytes     int64   `env:"RECORD_MAX_BYTES" default:"1073741824" placeholder:"BYTES" help:"The size of all recordings in RECORD_PATH, at least twice RECORD_FILE_BYTES. Weir removes the oldest files."`
	RecordCompression  string  `env:"RECORD_COMPRESSION" default:"zstd" placeholder:"NAME" help:"zstd, or none for plain text."`
	RecordSecretFile   string  `env:"RECORD_SECRET_FILE" placeholder:"FILE" help:"A file with a secret of at least 16 bytes, the same for all replicas. Values that rules match by key alone are recorded as their HMAC-SHA256 under this secret. Without it, each process uses a random secret, so a user looks different in the recording of each process. A new secret needs a restart."`
}

// maxTopKeys bounds the memory of the heaviest keys.
const maxTopKeys = 100_000

func (o *Observation) complete(errs *settingErrors, admin bool) {
	if !(o.DenialLog >= 0 && o.DenialLog <= 1) { // NaN is neither
		errs.require("DENIAL_LOG", "be from 0 to 1")
	}
	positive(errs, "DENIAL_LOG_PER_SECOND", o.DenialLogPerSecond)
	if o.TopKeys == nil {
		o.TopKeys = new(int)
		if admin {
			*o.TopKeys = 1000
		}
	}
	if *o.TopKeys < 0 || *o.TopKeys > maxTopKeys {
		errs.require("TOP_KEYS", "be from 0 to %d", maxTopKeys)
	}
	o.completeRecording(errs)
}

// minRecordFile is the smallest RECORD_FILE_BYTES: a file needs room for some writes.
const minRecordFile = 1 << 20

func (o *Observation) completeRecording(errs *settingErrors) {
	if !(o.RecordSample > 0 && o.RecordSample <= 1) { // NaN is neither
		errs.require("RECORD_SAMPLE", "be above 0 and at most 1")
	}
	positive(errs, "RECORD_PER_SECOND", o.RecordPerSecond)
	if o.RecordFileBytes < minRecordFile {
		errs.require("RECORD_FILE_BYTES", "be at least %d", minRecordFile)
	}
	if o.RecordMaxBytes/2 < o.RecordFileBytes {
		errs.require("RECORD_MAX_BYTES", "be at least twice RECORD_FILE_BYTES, which is %d", o.RecordFileBytes)
	}
	setDefault(&o.RecordCompression, "zstd")
	errs.oneOf("RECORD_COMPRESSION", &o.RecordCompression, "zstd", "none")
}
