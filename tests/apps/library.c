/* A library to be loaded from a mount. */
int answer(void)
{
	return 42;
}
