package receipts

// checkPrivate trusts the folder's access list: file modes say nothing here.
func checkPrivate(string) error { return nil }
