// The source of lines.dll and lines.pdb (and embedded.dll): see README.md.
using System;
using System.Collections.Generic;
using System.Threading.Tasks;

namespace Lines
{
    public partial class Shop
    {
        public int Count { get; set; }

        public int Plain(int x)
        {
            return x * 3;
        }

        public async Task<int> RunAsync(int x)
        {
            await Task.Yield();
            return Plain(x);
        }

        public IEnumerable<int> Walk()
        {
            yield return 1;
        }

        public Func<int> Lambda(int x)
        {
            return () =>
                x + 1;
        }

        public abstract class Nothing
        {
            public abstract void HasNoBody();
        }
#line hidden
        public int AllHidden(int x)
        {
            return x * 5;
        }

        public int HiddenFirst(int x)
        {
            x++;
#line 1234 "generated/Grammar.y"
            return x * 7;
        }
#line default
    }
}
