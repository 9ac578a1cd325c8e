"""What proves where each event is: receipts, the ledger, intervals, the balance."""
