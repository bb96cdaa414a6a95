module github.com/fusebox-dev/fusebox/receipts/interop

go 1.26.0

require (
	github.com/fusebox-dev/fusebox v0.0.0
	github.com/gowebpki/jcs v1.0.2
	github.com/transparency-dev/formats v0.1.1
	github.com/transparency-dev/merkle v0.0.2
	golang.org/x/mod v0.43.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/fusebox-dev/fusebox => ../..
