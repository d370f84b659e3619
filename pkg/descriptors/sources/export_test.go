package sources

// AfterRead makes Watch call do after each time it has read the files and decided what to report.
func (f *File) AfterRead(do func()) { f.afterRead = do }

// PollOnly makes Watch use no notifications, so that it can run in virtual time.
func (f *File) PollOnly() { f.pollOnly = true }
