"""What training frameworks state about an adapter: one table per framework."""
