// A start-up hook of somebody else: DOTNET_STARTUP_HOOKS=.../ClpTarget.dll. Name, missing namespace and
// signature are prescribed.
internal static class StartupHook
{
    internal static bool Ran;

    public static void Initialize() => Ran = true;
}
