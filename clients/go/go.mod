module github.com/hifi-streams/hifi/clients/go

go 1.22
