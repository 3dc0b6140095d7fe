"""What acting costs: divergences, costs per action, and accountants that turn a budget into a number of actions."""
