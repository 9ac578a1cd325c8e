"""The proof of where each event is: receipts, the ledger, intervals, the balance."""
